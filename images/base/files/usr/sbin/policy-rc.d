#!/bin/sh
# There is no init to start a freshly installed service: 101 tells the installer not to try.
exit 101
