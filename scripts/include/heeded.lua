--! fragment heeded served unheeded prefix
--
-- What a message begins with that Redisson's clients wait for, and mortise's do not heed, for there is nothing to ask
-- for: unheeded, where entries were told or those that wait cannot be served, + where none waits. Where entries could
-- not be read all are to ask: nothing.
prefix = ''
if served or at and redis.pcall('zrangebyscore', queue, 0, '+inf', 'limit', 0, 1)[1] then
  prefix = unheeded
elseif at then
  prefix = '+'
end
