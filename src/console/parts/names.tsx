// A field for names of permissions or roles, which suggests those that exist.

import { useSettled } from '../address.ts';
import { useData } from '../api.ts';
import type { Permission, Role } from '../records.ts';
import { may } from '../session.ts';
import { TextField, type TextFieldProps } from './basic.tsx';
import { isListable, namesOf } from './keyForm.tsx';

export function NamesField({ of, ...props }: TextFieldProps & { of: 'permissions' | 'roles' }) {
  const { value } = props;
  // The last word is not complete, and those before it stay.
  const [, before = '', last = ''] = /^(.*[\s,])?([^\s,]*)$/s.exec(value) ?? [];
  const search = useSettled(last);
  const isRoles = of === 'roles';
  const { data } = useData<(Permission | Role)[]>(
    isRoles ? 'permissions.listRoles' : 'permissions.listPermissions',
    may('rbac', isRoles ? 'read_role' : 'read_permission') ? { limit: 20, ...(search && { search }) } : undefined,
  );
  const chosen = namesOf(before);
  const names = (data ?? [])
    .map((one) => ('slug' in one ? one.slug : one.name))
    .filter((name) => isListable(name) && !chosen.includes(name));
  return (
    <>
      <TextField {...props} list={`names-${of}`} />
      <datalist id={`names-${of}`}>
        {names.map((name) => (
          <option key={name} value={before + name} />
        ))}
      </datalist>
    </>
  );
}
