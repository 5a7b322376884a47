--! fragment to_end entry score
--
-- Moves a new entry to the end of its queue, if it is not there: the server's clock was set back since another entry
-- came. An entry whose score is its time alone would be before that entry, and so would all that come after it. score
-- becomes the entry's if it is moved.
local last = redis.pcall('zrange', queue, -1, -1, 'withscores') -- an error has no entry
if last[1] and last[1] ~= entry and last[2] + 0 < exact_most then -- a larger score is not of mortise
  score = last[2] + 1
  redis.pcall('zadd', queue, 'xx', string.format('%.0f', score), entry)
end
