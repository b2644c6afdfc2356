-- Whether the time has come from which nothing of a campaign goes out any more: what is under way of it is cancelled.
-- Its plan, which says when that is, is sealed.
ALTER TABLE campaigns ADD COLUMN expired boolean NOT NULL DEFAULT false;

-- Tests that are to be decided: of a campaign that recurs there are many runs, and hardly ever more than one such.
CREATE INDEX campaign_runs_undecided ON campaign_runs (campaign, decide_at) WHERE decide_at IS NOT NULL;
