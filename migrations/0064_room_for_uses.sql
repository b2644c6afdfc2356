-- Room for what counts towards caps: a person's row has a hundred octets when it is made and grows by sixteen with each message that
-- counts, up to nine hundred. A version for which its page has no room goes to another page, and into both indexes: one change in nine
-- did in a base whose people had had six messages, one in thirty where pages begin with more room. That table is a fifth larger.
-- What lies in the table stays where it is.
-- beside: yes

ALTER TABLE cap_uses SET (fillfactor = 30);
