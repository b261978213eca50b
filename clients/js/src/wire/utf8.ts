// UTF-8, also where there is no TextDecoder: some releases of React Native's engine have none.

const encoder = new TextEncoder();
const decoder = platforms();

function platforms(): TextDecoder | undefined {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  } catch {
    return undefined; // there is none, or one that knows no such options
  }
}

export const toUTF8 = (text: string): Uint8Array => encoder.encode(text);

/** Short text is read by hand: calling a TextDecoder takes longer than that. */
const SHORT = 32;

/** Throws a TypeError for bytes that are not UTF-8. */
export function fromUTF8(bytes: Uint8Array): string {
  if (bytes.length > SHORT) return decoder ? decoder.decode(bytes) : slowly(bytes);
  let text = "";
  for (let i = 0; i < bytes.length; i++) {
    if (bytes[i]! > 0x7f) return slowly(bytes);
    text += String.fromCharCode(bytes[i]!);
  }
  return text;
}

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
