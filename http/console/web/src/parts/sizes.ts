/** Numbers as people read them. */

const GROUPS = new Intl.NumberFormat("en-GB");

/** 12,345 */
export const count = (value: number): string => GROUPS.format(value);

/** 999, 1.2k, 34k, 5.6M */
export function short(value: number): string {
  if (value < 1000) return String(value);
  const [unit, scale] = value < 999_500 ? ["k", 1000] : ["M", 1_000_000];
  const scaled = value / (scale as number);
  return `${scaled < 9.95 ? scaled.toFixed(1) : Math.round(scaled)}${unit}`;
}

/** 512 B, 3.4 KiB, 12 MiB */
export function bytes(value: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 || value >= 10 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

/** "1 run", "2 runs" */
export const plural = (value: number, one: string, many = `${one}s`): string => `${count(value)} ${value === 1 ? one : many}`;
