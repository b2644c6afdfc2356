-- Statistics of columns by which nothing is looked for: to make them cost as much as the work itself. Of an array of numbers ANALYZE counts
-- every element, a quarter of a second for 100,000 people under caps, and that each time a tenth of them had been sent something.
-- beside: yes

-- Found by its key alone. The sample follows from the column that asks for the largest one.
ALTER TABLE cap_uses ALTER COLUMN person SET STATISTICS 10;
ALTER TABLE cap_uses ALTER COLUMN app SET STATISTICS 10;
ALTER TABLE cap_uses ALTER COLUMN tiers SET STATISTICS 10;
ALTER TABLE cap_uses ALTER COLUMN uses SET STATISTICS 0;
ALTER TABLE cap_uses ALTER COLUMN refused SET STATISTICS 0;

ALTER TABLE messages ALTER COLUMN topic_header SET STATISTICS 0;
ALTER TABLE messages ALTER COLUMN policy SET STATISTICS 0;
ALTER TABLE messages ALTER COLUMN traceparent SET STATISTICS 0;
ALTER TABLE messages ALTER COLUMN filter SET STATISTICS 0;

ALTER TABLE message_counts ALTER COLUMN targeted SET STATISTICS 0;
ALTER TABLE message_counts ALTER COLUMN accepted SET STATISTICS 0;
ALTER TABLE message_counts ALTER COLUMN gone SET STATISTICS 0;
ALTER TABLE message_counts ALTER COLUMN expired SET STATISTICS 0;
ALTER TABLE message_counts ALTER COLUMN dead SET STATISTICS 0;
ALTER TABLE message_counts ALTER COLUMN cancelled SET STATISTICS 0;
ALTER TABLE message_counts ALTER COLUMN capped SET STATISTICS 0;
ALTER TABLE message_counts ALTER COLUMN sunset SET STATISTICS 0;

ALTER TABLE queue ALTER COLUMN token SET STATISTICS 0;
ALTER TABLE batches ALTER COLUMN recipients SET STATISTICS 0;
