# Node 22 on Debian 12, as uWebSockets.js has a build for it that needs only glibc 2.27. The digest decides what is pulled, so that a
# tag that moves changes nothing; `npm run pin -- images` takes what the tags name now, with the security updates since. For Debian 13
# with Node 24: --build-arg NODE_IMAGE=node:24-trixie-slim --build-arg DEBIAN_IMAGE=debian:trixie-slim, better with their digests.
ARG NODE_IMAGE=node:22-bookworm-slim@sha256:43ac6c60b8f89723f746e8a92ce91abd5017e627ce1ddfe4238355d3a30b772c
ARG DEBIAN_IMAGE=debian:bookworm-slim@sha256:3783cc01769c7b2b1b83a5c5ad96c815348e28ed7da68e2e3687004faa906251

# No package needs its install script. The compiler is removed after the build.
FROM ${NODE_IMAGE} AS build
WORKDIR /app
COPY package.json package-lock.json ./
RUN ["npm", "ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund"]
COPY tsconfig.json tsconfig.build.json ./
COPY src ./src
COPY lua ./lua
RUN ["node_modules/.bin/tsc", "-p", "tsconfig.build.json"]
RUN ["node", "dist/scripts/writeLibrary.js"]
# Fails the build, instead of the start, when the build of uWebSockets.js for this system is missing or differs from its pin.
RUN ["node", "-e", "import('./dist/http/uws.js').then(({ uws }) => uws())"]
# After the version: nothing in a release; otherwise --build-arg VERSION_SUFFIX=+g$(git rev-parse --short HEAD).
ARG VERSION_SUFFIX
RUN ["node", "-e", "require('fs').writeFileSync('dist/commit.txt', process.env.VERSION_SUFFIX ?? '+unknown')"]
RUN ["rm", "-r", "node_modules/typescript", "node_modules/@typescript", "node_modules/.bin"]

# The image: Debian, the node program, and Tollgate with its packages. No npm, no compiler, no writable folder.
FROM ${DEBIAN_IMAGE}
COPY --from=build /usr/local/bin/node /usr/local/bin/node
WORKDIR /app
COPY --from=build /app/node_modules ./node_modules
COPY --from=build /app/dist ./dist
COPY --from=build /app/src/http/examples.json /app/src/http/console.bundle.js /app/src/http/console.bundle.css ./src/http/
COPY package.json LICENSE ./
COPY deploy/image/tollgate /usr/local/bin/tollgate
# The output of a container is kept as a log, which must not contain a root key: the command line creates the first one.
ENV NODE_ENV=production HOST=0.0.0.0 PORT=8080 FIRST_ROOT_KEY=none
EXPOSE 8080
USER 10001:10001
# Liveness, as an unhealthy container may be replaced, which does not help while Redis is away.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["node", "dist/health.js"]
# Runs as process 1: handles SIGTERM itself, finishes the requests in flight, and ends within ten seconds.
CMD ["node", "dist/main.js"]
