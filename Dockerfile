# The image of one service: docker build --build-arg SERVICE=osp-controller .
#
# FROM scratch, as there is one static program that needs nothing beside it: no shell, no package, no CA roots (a kubeconfig, or the pod's
# ServiceAccount, brings the CA of its cluster), so that nothing in it ever has to be patched but the program itself. distroless would add
# time zones, roots and a passwd file that it does not read.
#
# `cargo xtask image` builds the last stage with buildah, and gives it the contents that it has built itself.

FROM docker.io/library/rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
ARG REVISION
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    REVISION=$REVISION cargo xtask image --contents /contents

FROM scratch AS contents
COPY --from=build /contents/ /

FROM scratch
ARG SERVICE
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.title=$SERVICE \
      org.opencontainers.image.version=$VERSION \
      org.opencontainers.image.revision=$REVISION \
      org.opencontainers.image.source=https://github.com/kubermatic/operating-system-manager \
      org.opencontainers.image.licenses=Apache-2.0
COPY --from=contents /$SERVICE/root/ /
# glibc would keep what each thread has freed for that thread alone, and documents that are gone, if something small was allocated after them.
ENV MALLOC_ARENA_MAX=1 MALLOC_MMAP_THRESHOLD_=32768
USER 65532:65532
EXPOSE 8080
# The name of the program is that of the service; there is no shell that could put it in.
ENTRYPOINT ["/service"]
