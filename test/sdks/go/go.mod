module tollgate.test/sdks

go 1.22

require github.com/unkeyed/sdks/api/go/v2 v2.5.0
