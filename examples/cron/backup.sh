#!/bin/sh
# Notes the time for which it runs, and the host.
echo "$UNDERSTUDY_SCHEDULED on $UNDERSTUDY_NAME" >>ran.log
