/** A setting from the environment, where secrets belong. Without it the program ends. */
export function env(name: string, fallback?: string): string {
  const value = process.env[name] ?? fallback;
  if (value) return value;
  console.error(`${name} is missing: README.md describes its source`);
  process.exit(1);
}
