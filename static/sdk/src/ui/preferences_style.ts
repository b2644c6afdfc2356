/** Rules of `<bellwire-preferences>`, in addition to those of all elements. */
export const STYLE = `.settings .actions{justify-content:start}
fieldset{border:0;display:grid;gap:.5rem}
legend,dt{font-weight:bold}
.topic,.important{display:flex;gap:.75rem;align-items:start;padding-block:.25rem}
input{flex:none;width:1.25rem;height:1.25rem;margin-block:.125rem;accent-color:var(--a)}
.description{display:block;font-size:.9em}
dl{display:grid;grid-template-columns:auto 1fr;gap:.25rem .75rem;font-size:.9em;padding-block:.25rem}
.status{margin-top:.75rem}
summary{cursor:pointer;min-height:1.5rem}`;
