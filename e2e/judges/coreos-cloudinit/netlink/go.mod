module github.com/dotcloud/docker

go 1.26.0
