# The pulumi of a rehearsal; installation.py fills in the names in braces.
edits=
if [ -e {source} ] && ! cmp -s {source} {seen}; then
  {python} -m ml_foundations.rehearsal.engine.project_files {root} || exit 1
fi
# `config set` edits the project's own file. What the rehearsal's key encrypts stays with the rehearsal; what is removed
# goes from both files.
case "$*" in
  "config set"* | "config -"*" set "* | "config -"*" set-all "*) edits=set ;;
  "config rm"* | "config -"*" rm "*) edits=rm ;;
esac
[ "$edits" != rm ] || {cli} "$@" || exit 1
case "$edits$*" in
  *--secret*) ;;
  set* | rm*) export PULUMI_OPTION_CONFIG_FILE={source} ;;
esac
exec {cli} "$@"
