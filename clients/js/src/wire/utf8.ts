// UTF-8, also where there is no TextDecoder: some releases of React Native's engine have none.

const encoder = new TextEncoder();
const decoder = typeof TextDecoder === "undefined" ? undefined : new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

export const toUTF8 = (text: string): Uint8Array => encoder.encode(text);

/** Throws a TypeError for bytes that are not UTF-8. */
export const fromUTF8 = (bytes: Uint8Array): string => (decoder ? decoder.decode(bytes) : slowly(bytes));

/** What TextDecoder does, by hand. */
export function slowly(bytes: Uint8Array): string {
  let text = "";
  for (let i = 0; i < bytes.length; ) {
    const b = bytes[i++]!;
    const more = b < 0x80 ? 0 : b >= 0xc2 && b < 0xe0 ? 1 : b >= 0xe0 && b < 0xf0 ? 2 : b >= 0xf0 && b < 0xf5 ? 3 : -1;
    let point = more === 0 ? b : b & (0x3f >> more);
    for (let n = 0; n < more; n++) {
      const next = bytes[i++] ?? 0;
      if ((next & 0xc0) !== 0x80) throw new TypeError("not UTF-8");
      point = point * 64 + (next & 0x3f);
    }
    const least = [0, 0x80, 0x800, 0x10000][more];
    if (least === undefined || point < least || point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) throw new TypeError("not UTF-8");
    text += String.fromCodePoint(point);
  }
  return text;
}
