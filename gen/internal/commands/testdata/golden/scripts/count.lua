--! script count
--! key 1 lock    hash
--! key 2 channel channel
--! arg 1 holds   int
--! arg 2 fair    bool
--! reply ints    held, waiting
--
-- Every type that the other scripts lack.
local lock = KEYS[1]
--[[ a long
     comment ]]
local quoted = "-- no 'comment'"
return {redis.call('hincrby', lock, ARGV[2], ARGV[1]), redis.call('publish', KEYS[2], quoted)}
