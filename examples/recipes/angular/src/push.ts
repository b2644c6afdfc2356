import { Injectable, signal } from "@angular/core";
import { init, type Status } from "@bellwire/web";

@Injectable({ providedIn: "root" })
export class Push {
  readonly bellwire = init({ app: "shop", server: "https://push.example.com" });
  readonly status = signal<Status | undefined>(undefined);

  constructor() {
    this.bellwire.on("change", (status) => this.status.set(status));
  }
}
