module go.anx.io/go-anxcloud

go 1.26.0
