--! fragment reached publish channel place heard
--
-- heard is the reply to a message to the waiter of a place in a fair lock's queue: the number of subscribers that it
-- reached, or an error. PUBLISH also counts clients that subscribe to a pattern, which are no waiters. So NUMSUB
-- decides: heard becomes 0 if the message reached no waiter.
if publish == 'publish' and type(heard) == 'number' and heard > 0 then
  local count = redis.pcall('pubsub', 'numsub', channel .. ':' .. place)
  heard = count[2] == 0 and 0 or heard
end
