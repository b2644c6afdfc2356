export default {
  // One origin for pages and backend, as in production: the session's cookie goes nowhere else.
  server: { port: 3000, strictPort: true, proxy: { "/api": "http://localhost:3001" } },
};
