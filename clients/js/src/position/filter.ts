// Which topics a filter with wildcards is for.
import { toUTF8 } from "../wire/utf8.js";

export const isWild = (filter: string) => /[+#]/.test(filter);

/** Why something can't be a filter; empty: it can. */
export function filterFault(filter: string): string {
  const bytes = toUTF8(filter).length;
  if (bytes === 0 || bytes > 255) return "it must have 1 to 255 bytes";
  const levels = filter.split("/");
  for (const [i, level] of levels.entries()) {
    if (level === "") return "empty level";
    if (level.length > 1 && isWild(level)) return "a wildcard is a whole level";
    if (level === "#" && i < levels.length - 1) return "# is the last level";
  }
  return "";
}

/**
 * Whether a valid filter matches a topic. "a/#" matches "a" too; a wildcard in the first level does
 * not match a level that begins with "$".
 */
export function matches(filter: string, topic: string): boolean {
  if (topic === "" || (topic.startsWith("$") && isWild(filter[0]!))) return false;
  const want = filter.split("/");
  const have = topic.split("/");
  for (const [i, level] of want.entries()) {
    if (level === "#") return true;
    if (i >= have.length || (level !== "+" && level !== have[i])) return false;
  }
  return want.length === have.length;
}
