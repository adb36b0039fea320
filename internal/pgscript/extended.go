package pgscript

import (
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgproto3"
)

// A statement is what Parse has left.
type statement struct {
	sql       string
	params    []uint32
	described []uint32 // the types that the client was last told, nil if none
}

// A portal is what Bind has left.
type portal struct {
	*statement
	args    []any
	formats []int16
}

// extended handles a message of the extended protocol. Messages are only valid
// until the next one, so that nothing of them may be kept.
func (c *conn) extended(message pgproto3.FrontendMessage) error {
	switch m := message.(type) {
	case *pgproto3.Parse:
		c.statements[m.Name] = &statement{sql: m.Query, params: paramsOf(m.Query, m.ParameterOIDs)}
		c.backend.Send(&pgproto3.ParseComplete{})
		return nil
	case *pgproto3.Describe:
		return c.describe(m)
	case *pgproto3.Bind:
		return c.bind(m)
	case *pgproto3.Execute:
		p, ok := c.portals[m.Portal]
		if !ok {
			return c.unknown("34000", "portal", m.Portal)
		}
		return c.execute(p)
	case *pgproto3.Close:
		if m.ObjectType == 'S' {
			delete(c.statements, m.Name)
		} else {
			delete(c.portals, m.Name)
		}
		c.backend.Send(&pgproto3.CloseComplete{})
		return nil
	default:
		return c.failExtended(Fail("0A000", fmt.Sprintf("pgscript: no answer to %T", message)))
	}
}

func (c *conn) describe(m *pgproto3.Describe) error {
	p, ok := c.portals[m.Name]
	if m.ObjectType == 'S' {
		var st *statement
		if st, ok = c.statements[m.Name]; ok {
			c.backend.Send(&pgproto3.ParameterDescription{ParameterOIDs: st.params})
			p = &portal{statement: st}
		}
	}
	if !ok {
		return c.unknown("26000", "statement or portal", m.Name)
	}
	a := c.answer(Query{SQL: p.sql, Session: c.session.number, Describing: true})
	p.described = oids(a.row)
	c.backend.Send(description(a.row, p.formats))
	return nil
}

func (c *conn) bind(m *pgproto3.Bind) error {
	st, ok := c.statements[m.PreparedStatement]
	if !ok {
		return c.unknown("26000", "prepared statement", m.PreparedStatement)
	}
	if len(m.Parameters) != len(st.params) {
		return c.failExtended(Fail("08P01", fmt.Sprintf("pgscript: %d parameters for %d", len(m.Parameters), len(st.params))))
	}
	p := &portal{statement: st, formats: slices.Clone(m.ResultFormatCodes), args: make([]any, len(st.params))}
	for i, src := range m.Parameters {
		typ, known := c.types.TypeForOID(st.params[i])
		if src == nil || !known {
			continue
		}
		var err error
		if p.args[i], err = typ.Codec.DecodeValue(c.types, typ.OID, formatOf(m.ParameterFormatCodes, i), src); err != nil {
			return c.failExtended(Fail("22P03", fmt.Sprintf("pgscript: parameter $%d: %v", i+1, err)))
		}
	}
	c.portals[m.DestinationPortal] = p
	c.backend.Send(&pgproto3.BindComplete{})
	return nil
}

func (c *conn) execute(p *portal) error {
	a := c.answer(Query{SQL: p.sql, Args: p.args, Session: c.session.number})
	if a.describes() && p.described != nil && !slices.Equal(p.described, oids(a.row)) {
		// The client would misread the row.
		c.server.t.Errorf("pgscript: described with the types %v and answered with %v: %s", p.described, oids(a.row), p.sql)
		return errEnded
	}
	failed, err := c.play(a, p.formats, false)
	c.skips = failed
	return err
}

func (c *conn) unknown(code, kind, name string) error {
	return c.failExtended(Fail(code, fmt.Sprintf("%s %q does not exist", kind, name)))
}

func (c *conn) failExtended(a *Answer) error {
	c.skips = true
	_, err := c.play(a, nil, false)
	return err
}
