package doctor

// What tests look at in a transaction of their own, in which they fake what a
// server shows.
var (
	Engine        = engine
	EventTriggers = eventTriggers
	Epoch         = epoch
	Schema        = schema
	Guards        = guards

	ShellWord     = shellWord
	ShellArgument = shellArgument
	Identifier    = identifier
)
