import { signal } from "@preact/signals";

/** Beyond this the machine that shows the page is thought to be wrong, not the network slow. */
const TRUSTED_MS = 5_000;

/** Time of the server: a device with a wrong clock must not show that a hold is over. */
class ServerClock {
  #offsetMs = 0;
  /** The present, to the second, for what is drawn: it moves by itself. */
  readonly shown = signal(new Date());

  /** Goes by the `Date` of a response from now on, if this machine's clock is off. */
  follow(date: string | null, here = Date.now()): void {
    const offset = date ? Date.parse(date) - here : NaN;
    if (!Number.isNaN(offset)) this.#offsetMs = Math.abs(offset) > TRUSTED_MS ? offset : 0;
  }

  now(): Date {
    return new Date(Date.now() + this.#offsetMs);
  }

  /** Moves what is drawn, every few seconds while anybody looks. */
  run(): void {
    setInterval(() => {
      if (!document.hidden) this.shown.value = this.now();
    }, 5_000);
    document.addEventListener("visibilitychange", () => (this.shown.value = this.now()));
  }
}

export const clock = new ServerClock();
