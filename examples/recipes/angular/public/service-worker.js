importScripts("https://push.example.com/sdk/service-worker.js"); // first: its listeners have to be added before others
importScripts("./ngsw-worker.js");
