-- By whom webhooks are, and who was removed from the team.
-- beside: yes

-- An API key's or teammate's id, or `local` for the command line, as the audit log names them; null: made before this was kept. Webhooks
-- outlive the keys that made them, since whoever replaces keys wants to be told of what happens still: what a stolen key made, or led
-- elsewhere, has to be found.
ALTER TABLE webhooks ADD COLUMN created_by text;
ALTER TABLE webhooks ADD COLUMN changed_by text; -- by whom it was last changed or given another secret; null: by nobody since it was made

-- Whoever was removed does not come back by their provider as a newcomer, unless they are invited. They are not named: by HMACs they are
-- known again when they come.
CREATE TABLE removed_teammates (
    email_mac   bytea       NOT NULL CHECK (length(email_mac) = 32), -- of the address that they had
    account_mac bytea       CHECK (length(account_mac) = 32), -- of an account at a provider that was linked to them; null: none was
    removed_at  timestamptz NOT NULL
);
CREATE INDEX removed_teammates_by_email ON removed_teammates (email_mac);
CREATE INDEX removed_teammates_by_account ON removed_teammates (account_mac);
