importScripts("/sdk/service-worker.js");
