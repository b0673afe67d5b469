// HIGHLIGHT_WORKER is the path of the built worker; build.mjs defines it.
declare const HIGHLIGHT_WORKER: string;

// The paths of the icons of notifications.
declare const NOTIFICATION_ICON: string;
declare const NOTIFICATION_BADGE: string;

declare module "*.svg" {
  const path: string;
  export default path;
}

declare module "*.css";
