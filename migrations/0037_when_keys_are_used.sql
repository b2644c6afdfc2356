-- When an API key was last shown, so that people see which ones nothing needs any more. A day is enough for that, and so each key is
-- written at most once a day, not with each request.
ALTER TABLE api_keys ADD COLUMN last_used_on date; -- in UTC; null: never, or not since this is noted
