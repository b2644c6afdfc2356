-- Who may say what: user tokens of one form for each key.

-- The HMAC of a user id that reads `header.payload` is the signature of that JWT: a key serves one of the two forms only.
-- Keys made before are for JWTs; whoever used one for HMACs is told so by the problem `user_token_form`.
ALTER TABLE identity_keys
    ADD COLUMN form text NOT NULL DEFAULT 'jwt' CHECK (form IN ('jwt', 'hmac')),
    ADD CHECK (form = 'jwt' OR algorithm = 'HS256');
ALTER TABLE identity_keys ALTER COLUMN form DROP DEFAULT;
