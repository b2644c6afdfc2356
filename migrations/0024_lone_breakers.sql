-- What only one replica sees of a push service stays its own.

-- The replica that alone cannot reach the origin, by its network or its clock (a certificate that is not valid yet): its
-- breaker is open, or half open, for itself alone. Null: the breaker stands so for all.
ALTER TABLE lane_states ADD COLUMN breaker_of uuid;
