// HIGHLIGHT_WORKER is the path of the built worker; build.mjs defines it.
declare const HIGHLIGHT_WORKER: string;

declare module "*.svg" {
  const path: string;
  export default path;
}

declare module "*.css";
