-- Releases the lock if the owner still has it, and wakes those who wait for it.
--
-- KEYS: the lock, whose name is also that of the channel. ARGV: the owner.

local held = redis.call('GET', KEYS[1])
if held ~= ARGV[1] then
  return held and 'taken' or 'missing'
end
redis.call('DEL', KEYS[1])
local sent = redis.pcall('PUBLISH', KEYS[1], '')
if type(sent) == 'table' then
  return 'held, and ' .. sent.err
end
return 'held'
