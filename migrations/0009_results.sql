-- What campaigns achieved: the conversions that sites report, and the groups of people that are compared.

CREATE TABLE conversions (
    event    uuid        PRIMARY KEY, -- user_events.id: the event that reported it
    app      uuid        NOT NULL, -- owner
    -- model::person: the person, then the browsers in which the person may have been anonymous.
    people   uuid[]      NOT NULL CHECK (cardinality(people) BETWEEN 1 AND 51),
    name     text        NOT NULL, -- kind of conversion: user_events.name
    at       timestamptz NOT NULL, -- time of the conversion
    value    bigint      CHECK (value BETWEEN 0 AND 10000000000000), -- in ten-thousandths of the currency; null: none
    currency text        CHECK (length(currency) = 3), -- ISO 4217; null: no value
    message  uuid,       -- the message to which it is attributed; null: none
    campaign uuid,       -- the campaign of that message
    variant  smallint,   -- index of the variant of that message
    CHECK ((value IS NULL) = (currency IS NULL)),
    CHECK ((message IS NULL) = (campaign IS NULL))
);
COMMENT ON TABLE conversions IS 'Conversions, with the campaign to which each is attributed. Deleted with their events.';
CREATE INDEX conversions_by_app ON conversions (app, at);
CREATE INDEX conversions_by_campaign ON conversions (campaign, at) WHERE campaign IS NOT NULL;

CREATE TABLE measurements (
    id        uuid        PRIMARY KEY, -- UUIDv7 of `began_at`
    campaign  uuid        NOT NULL REFERENCES campaigns ON DELETE CASCADE, -- the campaign
    app       uuid        NOT NULL, -- owner
    began_at  timestamptz NOT NULL, -- first run, or first person who entered
    closes_at timestamptz NOT NULL CHECK (closes_at > began_at), -- conversions count until then
    -- Whether people are assigned to groups: only in the first period. In later ones the groups have lost different people.
    compared  boolean     NOT NULL,
    enrol_at  timestamptz, -- run whose audience is still to be assigned to groups; null: none
    result    jsonb -- final result, as the API shows it; null: not closed yet
);
COMMENT ON TABLE measurements IS
    'Periods in which the results of campaigns are measured, in apps that do that: one for a campaign that runs once, '
    'consecutive ones of at most 30 days for others.';
CREATE INDEX measurements_by_campaign ON measurements (campaign, id);
CREATE INDEX measurements_by_app ON measurements (app, id);
CREATE INDEX measurements_to_close ON measurements (closes_at) WHERE result IS NULL;
CREATE INDEX measurements_to_enrol ON measurements (campaign, enrol_at) WHERE enrol_at IS NOT NULL;

CREATE TABLE measured_people (
    measurement uuid        NOT NULL, -- the measurement
    person      uuid        NOT NULL, -- model::person
    part        smallint    NOT NULL, -- the group: campaign::measurement::group_number
    at          timestamptz NOT NULL, -- conversions count from then on
    PRIMARY KEY (measurement, person) INCLUDE (part, at) -- results read nothing but the index
);
COMMENT ON TABLE measured_people IS
    'People of campaigns with a control group or variants, whether or not a message reached them. Deleted when the '
    'measurement is closed.';

CREATE TABLE measured_groups (
    measurement uuid     NOT NULL REFERENCES measurements ON DELETE CASCADE, -- the measurement
    part        smallint NOT NULL, -- the group
    people      bigint   NOT NULL CHECK (people >= 0), -- rows of measured_people
    PRIMARY KEY (measurement, part)
);
COMMENT ON TABLE measured_groups IS 'Number of people in each group, written with measured_people.';

CREATE FUNCTION measurements_tell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO stream_events (at, app, kind, data)
    SELECT NEW.closes_at, NEW.app, 'campaign.result',
           jsonb_build_object('campaign', 'cmp_' || c.id, 'slug', c.slug, 'result', NEW.result)
    FROM campaigns c WHERE c.id = NEW.campaign;
    RETURN NULL;
END $$;
CREATE TRIGGER measurements_told AFTER UPDATE OF result ON measurements FOR EACH ROW
    WHEN (OLD.result IS NULL AND NEW.result IS NOT NULL) EXECUTE FUNCTION measurements_tell();
