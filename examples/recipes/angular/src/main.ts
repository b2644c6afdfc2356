import { Component, inject } from "@angular/core";
import { bootstrapApplication } from "@angular/platform-browser";
import { provideServiceWorker } from "@angular/service-worker";
import { Push } from "./push";

@Component({
  selector: "app-root",
  template: `
    <p id="status">{{ push.status()?.state }}</p>
    <button id="subscribe" (click)="push.bellwire.subscribe({ topics: ['news'] })">Notify me</button>
  `,
})
class App {
  readonly push = inject(Push);
}

void bootstrapApplication(App, { providers: [provideServiceWorker("service-worker.js")] });
