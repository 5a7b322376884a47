--! script count
--! key 1 count string NAME
--! reply int   the count; 0 where there is none
--! bound 12 calls 2 MB
--
-- Reads the count of a latch or a semaphore.
--! include count_value
return math.min(tonumber(value or '0'), latch_most) -- a reply beyond int64 would be negative
