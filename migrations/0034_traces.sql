-- Which request a message came with, for whoever follows it in a tracing system: the span as W3C Trace Context writes it
-- (`00-<trace id>-<span id>-01`). Null unless that request was traced, so that this costs nothing where nothing is.
ALTER TABLE messages ADD COLUMN traceparent text;
