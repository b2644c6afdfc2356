importScripts("https://push.example.com/sdk/service-worker.js");
