-- Who may say what: user tokens of one form for each key; topics, tags and attributes by servers, and by browsers as far as
-- their app lets them.

-- The HMAC of a user id that reads `header.payload` is the signature of that JWT: a key serves one of the two forms only.
-- Keys made before are for JWTs; whoever used one for HMACs is told so by the problem `user_token_form`.
ALTER TABLE identity_keys
    ADD COLUMN form text NOT NULL DEFAULT 'jwt' CHECK (form IN ('jwt', 'hmac')),
    ADD CHECK (form = 'jwt' OR algorithm = 'HS256');
ALTER TABLE identity_keys ALTER COLUMN form DROP DEFAULT;

-- What browsers may do beyond joining and leaving topics that are there and open; servers may do it all.
ALTER TABLE apps ADD COLUMN browsers_may text[] NOT NULL DEFAULT '{}'
    CHECK (browsers_may <@ ARRAY['create_topics', 'set_tags', 'set_attributes']);

ALTER TABLE topics
    -- anyone: browsers join and leave it, too. server: whoever has a key puts them in and takes them out.
    ADD COLUMN join_by text NOT NULL DEFAULT 'anyone' CHECK (join_by IN ('anyone', 'server')),
    -- What browsers made is limited, and cleared when nobody uses it. Of topics made before nobody knows: they stay.
    ADD COLUMN made_by text NOT NULL DEFAULT 'server' CHECK (made_by IN ('browser', 'server'));

-- Whether anything was sent to a topic lately. One-time codes are addressed to no topic and pay nothing for it.
CREATE INDEX messages_by_topic ON messages (topic, id) WHERE topic IS NOT NULL;

-- Topics that are gone, until the last row of `topic_members` that names them is, too.
CREATE TABLE removed_topics (
    topic      integer     PRIMARY KEY,
    removed_at timestamptz NOT NULL
);

-- The example page's browsers choose among these and make none.
INSERT INTO topics (app, name, created_at)
SELECT id, topic, created_at FROM apps, unnest(ARRAY['news', 'offers', 'releases']) AS topic WHERE is_example
ON CONFLICT (app, name) DO NOTHING;
