import { Notifications } from "./notifications";

export default function Page() {
  return <Notifications />;
}
