--! fragment foreign_subscribers mark foreign also count
--
-- Sets foreign to the number of subscribers of Redisson's channel, less those of mortise's channel beside it: clients
-- of mortise subscribe to both, and half-open connections cancel out, too. mark is an entry, or the first letter of
-- one (see teller). If subscribers cannot be counted (the letter n, or an error), foreign keeps its value. The same
-- command counts the subscribers of the channels in also: from its fifth element on, count then has each channel,
-- and its number of subscribers behind it.
if string.sub(mark, 1, 1) ~= 'n' then
  count = redis.pcall('pubsub', string.sub(mark, 1, 1) == 's' and 'shardnumsub' or 'numsub', channel,
    channel .. ':mortise', unpack(also))
  foreign = count[4] and math.max(count[2] - count[4], 0) or foreign
end
