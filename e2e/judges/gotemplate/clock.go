package main

import (
	"errors"
	"reflect"
	"text/template"
	"time"
)

// errClock ends a case that reads the clock.
var errClock = errors.New("the clock is read")

// withoutClock wraps the functions that take the current time for what is no time; "durationRound" reads the clock for a time.
func withoutClock(all template.FuncMap) {
	for name, at := range map[string]int{"date": 1, "dateInZone": 1, "date_in_zone": 1, "htmlDate": 0, "htmlDateInZone": 0, "durationRound": 0} {
		function := reflect.ValueOf(all[name])
		wrapped := func(arguments []reflect.Value) []reflect.Value {
			isTime := false
			switch arguments[at].Interface().(type) {
			case time.Time, *time.Time:
				isTime = true
			case int, int32, int64:
				isTime = name != "durationRound"
			}
			if isTime == (name == "durationRound") {
				panic(errClock)
			}
			return function.Call(arguments)
		}
		all[name] = reflect.MakeFunc(function.Type(), wrapped).Interface()
	}
}
