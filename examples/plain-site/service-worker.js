importScripts("http://localhost:8787/sdk/service-worker.js");
