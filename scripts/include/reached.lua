--! fragment reached publish to heard
--
-- heard is the reply to a message on the channel to: the number of subscribers that it reached, or an error. PUBLISH
-- also counts clients that subscribe to a pattern, which are no waiters. So NUMSUB decides: heard becomes 0 if the
-- channel has no subscriber.
if publish == 'publish' and type(heard) == 'number' and heard > 0 then
  local count = redis.pcall('pubsub', 'numsub', to)
  heard = count[2] == 0 and 0 or heard
end
