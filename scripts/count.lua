--! script count
--! key 1 count string
--! reply int   the count; 0 where there is none
--
-- Reads the count of a latch or a semaphore.
--! include count_value
return math.min(tonumber(value or '0'), 9007199254740992) -- a reply beyond int64 would be negative
