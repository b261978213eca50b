/** The files of ../code, by demo and by the end of their names; build.mjs makes this module. */
declare module "programs" {
  const programs: Record<"chat" | "prices" | "seat" | "topic", Record<"go" | "ts" | "py" | "sh", string>>;
  export default programs;
}
