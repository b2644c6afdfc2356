-- A sign-in by an OpenID provider asks for a passkey, too, where there is one. The account that the provider vouched for is kept with
-- the challenge: it is linked, if it came for the first time, only with the passkey's answer.

ALTER TABLE passkey_challenges
    ADD COLUMN oidc_issuer  text CHECK (length(oidc_issuer) BETWEEN 1 AND 2048), -- the provider that vouched, as its tokens name it
    ADD COLUMN oidc_subject text CHECK (length(oidc_subject) BETWEEN 1 AND 255), -- for this account: `sub`
    ADD CHECK ((oidc_issuer IS NULL) = (oidc_subject IS NULL)),
    ADD CHECK (oidc_issuer IS NULL OR (session IS NULL AND link_mac IS NULL));

-- Who sent a message: sends are too many for the audit log, so each message says it itself. The id of an API key or, if there is no
-- such key, of a teammate, who may have been removed since. Null: nobody with an id (the example page), or before this was recorded.
ALTER TABLE messages ADD COLUMN sent_by uuid;
